CREATE TABLE IF NOT EXISTS "cosid" (
  name VARCHAR(100) NOT NULL PRIMARY KEY,
  last_max_id BIGINT NOT NULL DEFAULT 0,
  last_fetch_time BIGINT NOT NULL
) WITH (fillfactor = 50);
