CREATE TABLE IF NOT EXISTS "keymill_worker" (
  pool TEXT COLLATE "C" NOT NULL,
  slot BIGINT NOT NULL, -- 4611686018427387904: the layout of the pool
  token BIGINT NOT NULL, -- changes with each owner and each renewal
  mark BIGINT NOT NULL, -- first tick that no id has, where the next owner begins
  ends_at BIGINT NOT NULL, -- milliseconds since 1970 by the clock of this server, 0 where free
  owner TEXT NOT NULL,
  layout TEXT NOT NULL,
  PRIMARY KEY (pool, slot)
) WITH (fillfactor = 50);
COMMENT ON TABLE "keymill_worker" IS 'keymill VERSION';
