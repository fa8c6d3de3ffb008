CREATE TABLE IF NOT EXISTS `keymill_auto_increment` (
  `id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'ticket t owns (t-1)*step+1 to t*step',
  `stub` VARBINARY(512) NOT NULL,
  `step` INT NOT NULL DEFAULT 1000,
  PRIMARY KEY (`id`),
  KEY `stub` (`stub`),
  CHECK (`step` = 1000)
) ENGINE=InnoDB COMMENT='step=1000' /*T![auto_id_cache] AUTO_ID_CACHE=1 */;
