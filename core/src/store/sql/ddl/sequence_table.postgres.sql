CREATE TABLE IF NOT EXISTS "sequence_table" (
  biz_type VARCHAR(50) NOT NULL PRIMARY KEY,
  cur_id BIGINT NOT NULL,
  step INTEGER NOT NULL,
  time_to_live INTEGER NOT NULL
) WITH (fillfactor = 50);
