CREATE TABLE IF NOT EXISTS `sequence_table` (
`biz_type` VARCHAR(50) NOT NULL COMMENT '业务类型',
`cur_id` BIGINT(20) NOT NULL COMMENT '当前值',
`step` INT(11) NOT NULL COMMENT '步长',
`time_to_live` INT(11) NOT NULL COMMENT '生存时长(秒)',
PRIMARY KEY (`biz_type`)
)
COLLATE='utf8_general_ci'
ENGINE=InnoDB;
