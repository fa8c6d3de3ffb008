import { types } from 'node:util'

import { orderKeys } from './environment'
import { argument, asked, shown } from './error'
import { native, type NumbersBox } from './native'
import { of64, text, whole } from './router'

const BYTES = 16

/** A `Buffer`. Programs without the types of Node see a `Uint8Array`. */
export type Bytes = typeof globalThis extends { Buffer: { alloc(size: number): infer Found } } ? Found : Uint8Array

function bytes(what: string, value: unknown): Uint8Array {
  if (types.isUint8Array(value)) return value
  throw argument(`${what} must be a Buffer or a Uint8Array, not ${shown(value)}`)
}

function checked(value: unknown): bigint {
  return of64('an id', value, 0n)
}

function list(what: string, values: unknown): unknown[] | BigUint64Array {
  if (Array.isArray(values) || types.isBigUint64Array(values)) return values
  throw argument(`${what} must be an array, not ${shown(values)}`)
}

function words(what: string, values: unknown): BigUint64Array {
  const given = list(what, values)
  return types.isBigUint64Array(given) ? given : BigUint64Array.from(given, (value) => of64('one of the array', value, 0n))
}

function version(what: string, value: unknown): number {
  if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 255) return value as number
  throw argument(`${what} must be a whole number from 1 to 255, not ${shown(value)}`)
}

/**
 * Turns business ids into order numbers, which may be shown to anyone, and back. The gene in an order number stays readable, and the number is
 * encrypted with keys of this tenant and this table. What was not sealed so throws `FORGED`.
 */
export class OrderNumbers {
  readonly #box: NumbersBox

  private constructor(box: unknown) {
    if (typeof box !== 'object' || box === null) throw argument("order numbers are opened by OrderNumbers.open('keys.toml', 'tenant', 'orders'), not by new")
    this.#box = box as NumbersBox
  }

  /** With the keys of a file, which other users must not be able to read, for one tenant and one table; either may be empty. */
  static open(file: string, tenant = '', table = ''): OrderNumbers {
    return asked(() => new OrderNumbers(native.openNumbers(text('a file', file), text('a tenant', tenant), text('a table', table))))
  }

  /** With the keys in the environment variable `KEYMILL_ORDER_KEYS`, which has the text of a key file. */
  static fromEnv(tenant = '', table = ''): OrderNumbers {
    return asked(() => new OrderNumbers(native.numbersFromVariable(orderKeys(), text('a tenant', tenant), text('a table', table))))
  }

  /** With keys of the caller's: versions, 1 to 255, with 32 bytes each. The version `sealWith` seals. */
  static fromKeys(keys: Map<number, Uint8Array> | Record<number, Uint8Array>, sealWith: number, tenant = '', table = ''): OrderNumbers {
    if (typeof keys !== 'object' || keys === null) throw argument(`keys must be a Map or an object of versions and bytes, not ${shown(keys)}`)
    const given: [unknown, unknown][] = types.isMap(keys) ? [...keys] : Object.entries(keys).map(([name, key]) => [Number(name), key])
    const versions = given.map(([name]) => version('a version', name))
    const all = given.map(([, key]) => bytes('a key', key))
    const seals = version('sealWith', sealWith)
    return asked(() => new OrderNumbers(native.numbersFromKeys(versions, all, seals, text('a tenant', tenant), text('a table', table))))
  }

  /**
   * The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be of this
   * version.
   */
  withVersion(chosen: number): OrderNumbers {
    return asked(() => new OrderNumbers(native.numbersWithVersion(this.#box, version('a version', chosen))))
  }

  /** The version that seals, which belongs into a column beside order numbers of 8 bytes. */
  get version(): number {
    return native.numbersVersion(this.#box)
  }

  /** The order number of an id of 64 bits: 16 bytes. */
  seal(id: bigint | number): Bytes {
    return asked(() => native.seal(this.#box, checked(id))) as Bytes
  }

  /** The id in an order number of 16 bytes. */
  unseal(orderNo: Uint8Array): bigint {
    return asked(() => native.unseal(this.#box, bytes('an order number', orderNo)))
  }

  /** The order number of an id of 128 bits. */
  sealWide(id: bigint): Bytes {
    return asked(() => native.sealWide(this.#box, whole('an id', id))) as Bytes
  }

  /** The id of 128 bits in an order number. */
  unsealWide(orderNo: Uint8Array): bigint {
    return asked(() => native.unsealWide(this.#box, bytes('an order number', orderNo)))
  }

  /** The order number of 8 bytes: a bigint below `2n ** 63n`. It has no room for a check: every such number opens as some id. */
  seal8(id: bigint | number): bigint {
    return asked(() => native.seal8(this.#box, checked(id)))
  }

  /** The id in an order number of 8 bytes, of the version of `withVersion` or of the only version that is loaded. */
  unseal8(orderNo: bigint | number): bigint {
    return asked(() => native.unseal8(this.#box, of64('an order number', orderNo, 0n)))
  }

  /** The order numbers of many ids, several times as fast as one by one. */
  sealAll(ids: (bigint | number)[] | BigUint64Array): Bytes[] {
    const given = words('ids', ids)
    const all = asked(() => native.sealAll(this.#box, given))
    return Array.from(given, (_, at) => all.subarray(BYTES * at, BYTES * (at + 1)) as Bytes)
  }

  /** The ids in many order numbers of 16 bytes: all of them, or an error that names a wrong number. */
  unsealAll(orderNos: Uint8Array[]): bigint[] {
    const given = list('order numbers', orderNos)
    const all = new Uint8Array(BYTES * given.length)
    for (const [at, one] of given.entries()) {
      const orderNo = bytes('an order number', one)
      if (orderNo.length !== BYTES) throw argument(`order number ${at + 1} of ${given.length}: an order number has 16 bytes, and this one ${orderNo.length}`)
      all.set(orderNo, BYTES * at)
    }
    return Array.from(asked(() => native.unsealAll(this.#box, all)))
  }

  /** The order numbers of 8 bytes of many ids. */
  seal8All(ids: (bigint | number)[] | BigUint64Array): bigint[] {
    return Array.from(asked(() => native.seal8All(this.#box, words('ids', ids))))
  }

  /** The ids in many order numbers of 8 bytes, which one version has sealed. */
  unseal8All(orderNos: (bigint | number)[] | BigUint64Array): bigint[] {
    return Array.from(asked(() => native.unseal8All(this.#box, words('order numbers', orderNos))))
  }

  /** The order number of an id of 64 bits as text of 26 characters. */
  sealText(id: bigint | number): string {
    return asked(() => native.sealText(this.#box, checked(id)))
  }

  /** The id in the text of an order number of 16 bytes. Small letters are read too, and i, l and o as the digits that they look like. */
  unsealText(orderNo: string): bigint {
    return asked(() => native.unsealText(this.#box, text('an order number', orderNo)))
  }

  /** The order number of an id of 128 bits as text of 26 characters. */
  sealWideText(id: bigint): string {
    return asked(() => native.sealWideText(this.#box, whole('an id', id)))
  }

  /** The id of 128 bits in the text of an order number. */
  unsealWideText(orderNo: string): bigint {
    return asked(() => native.unsealWideText(this.#box, text('an order number', orderNo)))
  }

  /** The order number of 8 bytes as text of 14 characters; the last character finds typing errors. */
  seal8Text(id: bigint | number): string {
    return asked(() => native.seal8Text(this.#box, checked(id)))
  }

  /** The id in the text of an order number of 8 bytes. */
  unseal8Text(orderNo: string): bigint {
    return asked(() => native.unseal8Text(this.#box, text('an order number', orderNo)))
  }
}
