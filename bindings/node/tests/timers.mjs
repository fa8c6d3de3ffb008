// Counts the timers that keymill starts, or starts others in their place. It is imported before keymill, which takes the runtime's own when it is loaded.
import timers from 'node:timers'

const { setTimeout } = timers
export const started = { count: 0, instead: undefined }
timers.setTimeout = (...args) => {
  started.count += 1
  return (started.instead ?? setTimeout)(...args)
}
export { timers }
