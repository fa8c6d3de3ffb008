CREATE TABLE IF NOT EXISTS "sequence_table" (
  biz_type varchar(50) NOT NULL PRIMARY KEY,
  cur_id bigint NOT NULL, -- last number handed out
  step int NOT NULL,
  time_to_live int NOT NULL -- seconds; 0: without end
);
