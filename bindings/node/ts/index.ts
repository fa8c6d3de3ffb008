import { native, type Route, type SourceStats } from './native'

export { Business } from './business'
export type { Code } from './codes'
export { KeymillError } from './error'
export { lazy, shared, use, type LazyBusiness, type LazyOptions, type LazySource } from './lazy'
export { Mill, open, openAsync, storeOf, type AsBigInt, type AsNumber, type DatabaseProperties, type SourceOptions } from './mill'
export { OrderNumbers, type Bytes } from './order_numbers'
export { gene, Router, type Key } from './router'
export { Shards, type ShardsOptions } from './shards'
export { AnySource, NumberSource, Serial, Source, type Parts } from './source'
export type { Route, SourceStats }

/** keymill's version. */
export const version: string = native.version()
