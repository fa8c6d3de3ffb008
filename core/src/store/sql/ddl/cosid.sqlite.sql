CREATE TABLE IF NOT EXISTS "cosid" (
  name varchar(100) NOT NULL PRIMARY KEY, -- namespace.name
  last_max_id bigint NOT NULL DEFAULT 0, -- last number handed out
  last_fetch_time bigint NOT NULL
);
