CREATE TABLE IF NOT EXISTS `keymill_worker` (
  `pool` VARBINARY(512) NOT NULL,
  `slot` BIGINT UNSIGNED NOT NULL COMMENT 'the worker, and from 4611686018427387904 on the pool itself',
  `token` BIGINT UNSIGNED NOT NULL COMMENT 'changes with each owner and each renewal',
  `mark` BIGINT UNSIGNED NOT NULL COMMENT 'first tick that no id has, where the next owner begins',
  `ends_at` BIGINT UNSIGNED NOT NULL COMMENT 'milliseconds since 1970 by the clock of this server, 0 where free',
  `state` VARBINARY(16) NOT NULL COMMENT 'leased, elsewhere, repaired, pool, other_pool',
  `source` VARBINARY(512) NOT NULL COMMENT 'whose newest mark this is, or empty',
  `process` VARBINARY(255) NOT NULL COMMENT 'for people',
  `layout` VARBINARY(512) NOT NULL COMMENT 'of the ids of the pool',
  `stores` BIGINT UNSIGNED NOT NULL COMMENT 'how many stores share the workers',
  `store` BIGINT UNSIGNED NOT NULL COMMENT 'which of them, from 1',
  PRIMARY KEY (`pool`, `slot`)
) ENGINE=InnoDB COMMENT='keymill VERSION';
