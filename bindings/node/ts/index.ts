import { native, type SourceStats } from './native'

export type { Code } from './codes'
export { KeymillError } from './error'
export { Mill, open, openAsync, type AsBigInt, type AsNumber, type SourceOptions } from './mill'
export { AnySource, NumberSource, Serial, Source, type Parts } from './source'
export type { SourceStats }

/** keymill's version. */
export const version: string = native.version()
