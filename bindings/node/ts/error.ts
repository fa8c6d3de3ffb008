import { types } from 'node:util'

import type { Code } from './codes'
import { native } from './native'

/** What every verb throws, and every promise is rejected with. */
export class KeymillError extends Error {
  /** The code, the same name in every language. */
  readonly code: Code
  /** After how many milliseconds the call may succeed, where that is known. */
  readonly retryAfterMs: number | undefined

  constructor(code: Code, message: string, retryAfterMs?: number) {
    super(message)
    this.code = code
    this.retryAfterMs = retryAfterMs
  }
}
Object.defineProperty(KeymillError.prototype, 'name', { value: 'KeymillError', configurable: true, writable: true })

const names = new Set(native.codes())

/** What a native function threw, as people see it. */
export function translated(thrown: unknown): unknown {
  // Not by `instanceof`: Jest and Vitest run modules in a realm of their own, whose `Error` is not the one of native code.
  if (!types.isNativeError(thrown) || thrown instanceof KeymillError) return thrown
  const [code, retry] = String((thrown as { code?: unknown }).code).split('/')
  // napi's own complaints are about the types of arguments.
  if (!names.has(code)) return new KeymillError('INVALID_ARGUMENT', thrown.message)
  return new KeymillError(code as Code, thrown.message, retry === undefined ? undefined : Number(retry))
}

/** Runs a verb of the native part. */
export function asked<T>(verb: () => T): T {
  try {
    return verb()
  } catch (e) {
    throw translated(e)
  }
}

export function argument(message: string): KeymillError {
  return new KeymillError('INVALID_ARGUMENT', message)
}

/** A value as it may stand in a message: its type, and what it is where that is short. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case 'number':
    case 'boolean':
    case 'undefined':
      return String(value)
    case 'bigint':
      return `the bigint ${String(value).slice(0, 20)}n`
    case 'string':
      return 'a string'
    default:
      if (value === null) return 'null'
      if (Array.isArray(value)) return 'an array'
      return typeof value === 'object' ? 'an object' : `a ${typeof value}`
  }
}
