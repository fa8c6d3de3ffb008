CREATE TABLE IF NOT EXISTS `keymill_worker` (
  `pool` VARBINARY(512) NOT NULL,
  `slot` BIGINT UNSIGNED NOT NULL COMMENT '4611686018427387904: the layout of the pool',
  `token` BIGINT UNSIGNED NOT NULL COMMENT 'changes with each owner and each renewal',
  `mark` BIGINT UNSIGNED NOT NULL COMMENT 'first tick that no id has, where the next owner begins',
  `ends_at` BIGINT UNSIGNED NOT NULL COMMENT 'milliseconds since 1970 by the clock of this server, 0 where free',
  `owner` VARBINARY(255) NOT NULL,
  `layout` VARBINARY(512) NOT NULL,
  PRIMARY KEY (`pool`, `slot`)
) ENGINE=InnoDB COMMENT='keymill VERSION';
