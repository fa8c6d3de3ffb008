// Counts the timers that keymill starts. It is imported before keymill, which takes the runtime's own when it is loaded.
import timers from 'node:timers'

const { setTimeout } = timers
export const started = { count: 0 }
timers.setTimeout = (...args) => {
  started.count += 1
  return setTimeout(...args)
}
export { timers }
