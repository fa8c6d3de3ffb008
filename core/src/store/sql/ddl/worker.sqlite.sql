CREATE TABLE IF NOT EXISTS "keymill_worker" ( -- keymill VERSION
  pool TEXT NOT NULL,
  slot INTEGER NOT NULL, -- the worker, and from 4611686018427387904 on the pool itself
  token INTEGER NOT NULL, -- changes with each owner and each renewal
  mark INTEGER NOT NULL, -- first tick that no id has, where the next owner begins
  ends_at INTEGER NOT NULL, -- milliseconds since 1970, 0 where free
  state TEXT NOT NULL, -- leased, elsewhere, repaired, pool, other_pool
  source TEXT NOT NULL, -- whose newest mark this is, or empty
  process TEXT NOT NULL, -- for people
  layout TEXT NOT NULL, -- of the ids of the pool
  stores INTEGER NOT NULL, -- how many stores share the workers
  store INTEGER NOT NULL, -- which of them, from 1
  PRIMARY KEY (pool, slot)
) WITHOUT ROWID;
