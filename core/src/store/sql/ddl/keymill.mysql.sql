CREATE TABLE IF NOT EXISTS `keymill_segment` (
  `name` VARBINARY(512) NOT NULL,
  `date` BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of a serial, 0 else',
  `next` BIGINT UNSIGNED NOT NULL COMMENT 'lowest number not yet reserved',
  `state` VARBINARY(16) NOT NULL DEFAULT 'open' COMMENT 'open, beginning, leased, closed',
  `stores` BIGINT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'how many stores share the numbers',
  `store` BIGINT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'which of them, from 1',
  `chunk` BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'numbers at a time, 0 with one store',
  `writer` BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'random number of the mill that reserved last',
  `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB COMMENT='keymill VERSION';
