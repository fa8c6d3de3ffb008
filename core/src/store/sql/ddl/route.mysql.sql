CREATE TABLE IF NOT EXISTS `keymill_route` (
  `name` VARBINARY(512) NOT NULL,
  `version` BIGINT UNSIGNED NOT NULL COMMENT 'the version in the text, which only rises',
  `table_text` MEDIUMBLOB NOT NULL COMMENT 'TOML or JSON',
  PRIMARY KEY (`name`)
) ENGINE=InnoDB COMMENT='keymill VERSION';
