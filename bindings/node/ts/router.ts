import { types } from 'node:util'

import { argument, asked, shown } from './error'
import { native, type Route, type RouterBox } from './native'

/**
 * A business key: an integer of 64 bits, with or without a sign (a `number` as far as it is exact), or a text of at most 64 KiB.
 * `42` and `42n` are one key, `'42'` is another.
 */
export type Key = bigint | number | string

export function text(what: string, value: unknown): string {
  if (typeof value !== 'string') throw argument(`${what} must be a string, not ${shown(value)}`)
  // On its way to Rust half a character would become U+FFFD, and two keys one.
  if (/\p{Surrogate}/u.test(value)) throw argument(`${what} holds half of a surrogate pair, which is no character; write whole characters`)
  return value
}

/** A whole number; a `number` only as far as it is exact. */
export function whole(what: string, value: unknown): bigint {
  if (typeof value === 'bigint') return value
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value)
  throw argument(`${what} must be a bigint or a safe integer, not ${shown(value)}`)
}

export function of64(what: string, value: unknown, least: bigint): bigint {
  const number = whole(what, value)
  if (number < least || number > 0xffff_ffff_ffff_ffffn) throw argument(`${what} has more than 64 bits, or a sign: ${shown(number)}`)
  return number
}

const LEAST_KEY = -(2n ** 63n)

/** A key that is no text. */
function keyOf(key: unknown): bigint {
  if (typeof key === 'bigint' || typeof key === 'number') return of64('a key', key, LEAST_KEY)
  throw argument(`a key must be a bigint, a safe integer or a string, not ${shown(key)}`)
}

/** The gene of a business key, 0 to 65535. */
export function gene(key: Key): number {
  if (typeof key === 'string') return asked(() => native.geneText(text('a key', key)))
  return asked(() => native.geneNumber(keyOf(key)))
}

/** Which shard an id or a business key belongs to, by a table of ranges over the genes. */
export class Router {
  readonly #box: RouterBox

  private constructor(box: unknown) {
    if (typeof box !== 'object' || box === null) throw argument("a router is opened by Router.open('routes.toml'), Router.fromText or mill.router, not by new")
    this.#box = box as RouterBox
  }

  /** @internal */
  static of(box: RouterBox): Router {
    return new Router(box)
  }

  /** @internal */
  static boxOf(router: unknown): RouterBox {
    if (!(router instanceof Router)) throw argument(`a router is opened by Router.open, Router.fromText or mill.router, and not ${shown(router)}`)
    return router.#box
  }

  /** A router whose table is in a file, TOML or JSON. The file is read once; `load` replaces the table. */
  static open(file: string): Router {
    return asked(() => new Router(native.openRouter(text('a file', file))))
  }

  /** A router with this table: TOML, or JSON if the text begins with a brace. */
  static fromText(table: string): Router {
    return asked(() => new Router(native.routerFromText(text('a table', table))))
  }

  /**
   * Replaces the table; false: it is the present one. A bad table, or one whose version is not higher, throws `INVALID_CONFIG` with all its
   * faults, and the old one stays.
   */
  load(table: string): boolean {
    return asked(() => native.loadTable(this.#box, text('a table', table)))
  }

  /** Where an id belongs: a bigint of 64 bits, or bytes, 8 of them or 16 of a wide id. One of 128 bits is for `routeWide`, also where it is small. */
  route(id: bigint | number | Uint8Array): Route {
    if (types.isUint8Array(id)) return asked(() => native.routeBytes(this.#box, id))
    return asked(() => native.routeId(this.#box, of64('an id', id, 0n)))
  }

  /** Where an id of 128 bits belongs. */
  routeWide(id: bigint): Route {
    return asked(() => native.routeWide(this.#box, whole('an id', id)))
  }

  /** Where the ids of a business key belong. */
  routeKey(key: Key): Route {
    if (typeof key === 'string') return asked(() => native.routeText(this.#box, text('a key', key)))
    return asked(() => native.routeNumber(this.#box, keyOf(key)))
  }

  /**
   * Where the order belongs that has this order number, which needs no key: 16 bytes, a bigint of 8 bytes, or a text. Where a range moves by
   * number, the id decides, which is encrypted: `also` names the second shard then.
   */
  routeOrderNo(orderNo: Uint8Array | bigint | number | string): Route {
    if (types.isUint8Array(orderNo)) return asked(() => native.routeOrderNo(this.#box, orderNo))
    if (typeof orderNo === 'string') return asked(() => native.routeOrderNoText(this.#box, text('an order number', orderNo)))
    return asked(() => native.routeOrderNo8(this.#box, of64('an order number', orderNo, 0n)))
  }

  /**
   * Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written, and
   * while the range moves, this process may answer for it. Asks no store. A write while the range moves holds a transaction open on both
   * shards, and asks this before it commits `write`, then `mirror`. If not, roll both back and take a new route.
   */
  isCurrent(route: Route): boolean {
    if (typeof route?.gene !== 'number') throw argument(`isCurrent takes a route of this router, not ${shown(route)}`)
    return native.routeIsCurrent(this.#box, route.gene, route.write, route.mirror)
  }

  /** The version of the present table. */
  get version(): number {
    return native.routerVersion(this.#box)
  }

  /** How many milliseconds ago the store said that the table is the present one; undefined where it is not from a store. */
  get age(): number | undefined {
    return native.routerAge(this.#box) ?? undefined
  }
}
