CREATE TABLE IF NOT EXISTS `keymill_route` (
  `name` VARBINARY(512) NOT NULL,
  `version` BIGINT UNSIGNED NOT NULL COMMENT 'that of the text, only rises',
  `table_text` MEDIUMBLOB NOT NULL COMMENT 'TOML or JSON',
  PRIMARY KEY (`name`)
) ENGINE=InnoDB COMMENT='keymill VERSION';
