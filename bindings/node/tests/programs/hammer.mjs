// Takes ids and proves their order over threads: a thread that reads `latest` before it takes an id must get a later one.

/** `latest[0]`: the highest id that anybody has finished taking. */
export function hammer(mill, kind, latest, count) {
  const source = kind === 'serial' ? mill.serial('t', 'hammer', { number: '0'.repeat(15), date: '' }) : mill.segment('hammer')
  let violations = 0
  let ids = 0
  const check = (before, id) => {
    if (id <= before) violations++
    ids++
    for (let seen = Atomics.load(latest, 0); seen < id; ) {
      const found = Atomics.compareExchange(latest, 0, seen, id)
      if (found === seen) break
      seen = found
    }
  }
  while (ids < count) {
    const before = Atomics.load(latest, 0)
    const turn = ids % 64
    if (turn === 63) {
      // A batch: every id of it is later than what was finished before.
      for (const id of source.take(Math.min(9, count - ids))) check(before, BigInt(id))
    } else if (turn === 31) {
      const id = source.tryNext()
      if (id !== null) check(before, BigInt(id))
    } else {
      check(before, BigInt(source.next()))
    }
  }
  return { violations, ids }
}
