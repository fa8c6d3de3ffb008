CREATE TABLE IF NOT EXISTS "keymill_worker" (
  pool TEXT COLLATE "C" NOT NULL,
  slot BIGINT NOT NULL, -- the worker, and from 4611686018427387904 on the pool itself
  token BIGINT NOT NULL, -- changes with each owner and each renewal
  mark BIGINT NOT NULL, -- first tick that no id has, where the next owner begins
  ends_at BIGINT NOT NULL, -- milliseconds since 1970 by the clock of this server, 0 where free
  state TEXT COLLATE "C" NOT NULL, -- leased, elsewhere, repaired, pool, other_pool
  source TEXT COLLATE "C" NOT NULL, -- whose newest mark this is, or empty
  process TEXT NOT NULL, -- for people
  layout TEXT COLLATE "C" NOT NULL, -- of the ids of the pool
  stores BIGINT NOT NULL, -- how many stores share the workers
  store BIGINT NOT NULL, -- which of them, from 1
  PRIMARY KEY (pool, slot)
) WITH (fillfactor = 50);
COMMENT ON TABLE "keymill_worker" IS 'keymill VERSION';
