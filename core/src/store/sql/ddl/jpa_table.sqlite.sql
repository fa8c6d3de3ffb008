CREATE TABLE IF NOT EXISTS "hibernate_sequences" (
  sequence_name varchar(255) NOT NULL PRIMARY KEY,
  next_val bigint
);
