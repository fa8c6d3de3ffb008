// Ids of 64 bits as text. The digits come from the core, which reads such texts.
import { argument, shown } from './error'
import type { SourceFacts } from './native'

/** So many digits of every alphabet fit a small integer of V8. */
const GROUP = 5

/** The text of an id. */
export function textOf({ form }: SourceFacts, id: bigint | number): string {
  const { digits, width, prefix } = form
  const radix = digits.length
  if (radix === 10) return prefix + String(id)
  const power = BigInt(radix ** GROUP)
  let text = ''
  for (let rest = BigInt(id); text.length < width; rest /= power) {
    let group = Number(rest % power)
    for (let i = 0; i < GROUP && text.length < width; i++) {
      text = digits[group % radix] + text
      group = Math.trunc(group / radix)
    }
  }
  return prefix + text
}

/** An id that a caller gave. */
export function checkedId(id: unknown, label: string): bigint {
  const whole = typeof id === 'bigint' || (typeof id === 'number' && Number.isSafeInteger(id))
  if (!whole) throw argument(`textOf takes a bigint or a safe integer, not ${shown(id)}`)
  const number = BigInt(id as bigint | number)
  if (number < 1n || number >> 63n !== 0n) throw argument(`${number} is no id of \`${label}\`: ids lie from 1 to 9223372036854775807`)
  return number
}
