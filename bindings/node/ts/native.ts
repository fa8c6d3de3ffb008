// The native part: free functions over opaque values. Nothing here is public.
import type { Variables } from './environment'
import { load } from './library'

declare const opaque: unique symbol
/** One holder's share of a mill. */
export type MillBox = { [opaque]: 'mill' }
export type OpeningBox = { [opaque]: 'opening' }
export type SourceBox = { [opaque]: 'source' }
/** A question about the keys that a table has. */
export type KeysBox = { [opaque]: 'keys' }
export type BatchBox = { [opaque]: 'batch' }
/** What the keeper tells of news for promises of this context. */
export type NotifierBox = { [opaque]: 'notifier' }
export type RegistrationBox = { [opaque]: 'registration' }
export type RouterBox = { [opaque]: 'router' }
export type NumbersBox = { [opaque]: 'numbers' }
export type ShardTablesBox = { [opaque]: 'shard tables' }
export type ShardWriteBox = { [opaque]: 'shard write' }

/** What a write of `Shards` does next. */
export interface ShardStep {
  action: 'open' | 'begin' | 'ask' | 'work' | 'commit' | 'rollback' | 'close' | 'wait' | 'throw' | 'done'
  /** 0: on the shard that decides; 1: on the shard that follows. */
  side: 0 | 1
  /** The shard or the statement. */
  text: string
  /** Milliseconds of a wait; 1: the connection is ended. */
  number: number
}

/** A row: the bytes of its values. */
export type ShardRow = (Uint8Array | null)[]

/** What the environment has; `keys`: `KEYMILL_ORDER_KEYS`. */
export type OrderKeys = { keys?: string }

export interface SourceFacts {
  kind: 'segment' | 'snowflake' | 'serial' | 'business'
  label: string
  byThread: boolean
  counts: boolean
  wide: boolean
  fitsNumber: boolean
  settings: [name: string, value: string][]
}

/** A source's figures. */
export interface SourceStats {
  /** The source: `segment:orders`. */
  source: string
  /** Its spec, options included: what tells two sources of one name apart. */
  spec: string
  /** Ids handed out; numbers of a block count when the block is leased. */
  issued: number
  /** Numbers reserved from the store. */
  reserved: number
  /** Numbers in memory. */
  left: number
  /** Numbers that were reserved and will not be handed out. */
  lost: number
  /** Reservations that came back. */
  refills: number
  /** Calls that had to wait inside the core. */
  waits: number
  /** How many numbers the last reservation was. */
  step: number
  /** When it came: milliseconds since 1970; absent before the first. */
  lastRefillMs?: number
  /** Ids a second. */
  rate: number
  /** How many seconds the numbers in memory last at that rate. */
  runwaySeconds?: number
  /** How far a snowflake's time leads the wall clock. */
  leadMs?: number
  /** When a snowflake's layout ends: milliseconds since 1970. */
  endsAtMs?: number
  /** How long ago the lease of a snowflake's worker was renewed; absent without a lease. */
  leaseAgeMs?: number
  /** The error that callers get now. */
  refusal?: string
  /** The time zone of a serial's dates; with `zone=local` it is the program's zone. */
  zone?: string
}

/** Where an id or a business key belongs. */
export interface Route {
  /** The gene, 0 to 65535. */
  gene: number
  /** The shard of the gene's range. While the range moves, the shard that it leaves. */
  shard: string
  /** The shard to read from. */
  read: string
  /** The shard that decides a write: `shard`, until a move is finished. Absent while the route is paused. */
  write?: string
  /** While the range moves, the second shard to write to: it follows `write`, and a write is acknowledged when both have it. See `router.isCurrent`. */
  mirror?: string
  /** Whether writes of the range wait, because its move is about to be finished: for a second at most where all processes live. Take another route then. */
  paused: boolean
  /** A second shard that may serve ids of this key, for a key whose range moves by number. */
  also?: string
  /** The version of the table. */
  version: number
}

/** What `bindings/node/rust/src` exports; a test compares the names. */
export interface Native {
  codes(): string[]
  version(): string
  openMill(config: string | undefined, variables: Variables | undefined): MillBox
  opening(config: string | undefined, variables: Variables | undefined): OpeningBox
  runOpening(opening: OpeningBox): Promise<void>
  opened(opening: OpeningBox): MillBox
  closeMill(mill: MillBox): void
  closeAllMills(): void
  closeMillAsync(mill: MillBox): Promise<void>
  shareMill(mill: MillBox | undefined): number
  sharedMill(): MillBox | null
  isSharedOpen(): boolean
  isMillNamed(variables: Variables | undefined): boolean
  defaultMill(variables: Variables | undefined): MillBox
  shareWord(): ArrayBuffer | null
  shareGeneration(): number
  metrics(mill: MillBox): string
  events(mill: MillBox): string[]
  init(mill: MillBox, specs: string[]): string[]
  setClock(mill: MillBox, ms: number): void
  advanceClock(mill: MillBox, ms: number): void
  storeOf(url: string, properties: [string, string][]): string
  specString(kind: string, name: string[], options: [string, string][]): string
  source(mill: MillBox, spec: string): SourceBox
  copySource(source: SourceBox): SourceBox
  identity(source: SourceBox): string
  sourceFacts(source: SourceBox): SourceFacts
  join(source: SourceBox): void
  leave(source: SourceBox): void
  contextsWord(source: SourceBox): ArrayBuffer | null
  sourceWord(source: SourceBox): ArrayBuffer | null
  prefix(source: SourceBox): string
  giveBack(source: SourceBox, used: number): void
  lease(source: SourceBox, count: number, owned: boolean, waitedMs: number, out: BigUint64Array, registered?: boolean): number
  directNext(source: SourceBox, number: false): (() => bigint | undefined) | null
  directNext(source: SourceBox, number: true): (() => number | undefined) | null
  nextId(source: SourceBox, waitedMs: number, registered?: boolean): bigint | number
  nextText(source: SourceBox, waitedMs: number, registered?: boolean): string | number
  textOf(source: SourceBox, id: bigint): string
  directFor(source: SourceBox): ((key: unknown) => bigint | undefined) | null
  nextFor(source: SourceBox, gene: number, waitedMs: number, registered?: boolean): bigint | number
  nextWideFor(source: SourceBox, gene: number, waitedMs: number, registered?: boolean): bigint | number
  askFor(source: SourceBox, gene: number, count: number): BatchBox
  writeWideBatch(batch: BatchBox, out: BigUint64Array): void
  keysQuestion(source: SourceBox, table: string, highest: bigint): KeysBox
  askKeys(question: KeysBox): Promise<void>
  keysAnswer(question: KeysBox): string | null
  parse(source: SourceBox, text: string, isNumber: boolean): [name: string, value: string][]
  stats(source: SourceBox): [name: string, value: string | number][]
  fillNow(source: SourceBox, out: BigUint64Array): BatchBox | null
  ask(source: SourceBox, count: number): BatchBox
  poll(batch: BatchBox): number
  pollOrRegister(batch: BatchBox, notifier: NotifierBox, token: number): number
  notifier(told: () => void): NotifierBox
  news(notifier: NotifierBox): number[]
  register(source: SourceBox, gene: number, notifier: NotifierBox, token: number): RegistrationBox
  unregister(registration: RegistrationBox): void
  writeBatch(batch: BatchBox, out: BigUint64Array): void
  batchTexts(batch: BatchBox): string
  geneNumber(key: bigint): number
  geneText(key: string): number
  openRouter(file: string): RouterBox
  routerFromText(table: string): RouterBox
  millRouter(mill: MillBox, name: string): RouterBox
  loadTable(router: RouterBox, table: string): boolean
  routeId(router: RouterBox, id: bigint): Route
  routeWide(router: RouterBox, id: bigint): Route
  routeBytes(router: RouterBox, id: Uint8Array): Route
  routeNumber(router: RouterBox, key: bigint): Route
  routeText(router: RouterBox, key: string): Route
  routeOrderNo(router: RouterBox, orderNo: Uint8Array): Route
  routeOrderNo8(router: RouterBox, orderNo: bigint): Route
  routeOrderNoText(router: RouterBox, text: string): Route
  routeIsCurrent(router: RouterBox, gene: number, write: string | undefined, mirror: string | undefined): boolean
  routerVersion(router: RouterBox): number
  routerAge(router: RouterBox): number | null
  shardTables(router: RouterBox, tables: [name: string, key: string][], deadline: string | undefined): ShardTablesBox
  shardWrite(tables: ShardTablesBox, id: bigint, reads: boolean): ShardWriteBox
  shardWriteBytes(tables: ShardTablesBox, id: Uint8Array, reads: boolean): ShardWriteBox
  shardReady(write: ShardWriteBox): ShardStep
  shardOpened(write: ShardWriteBox, isPostgres: boolean): ShardStep
  shardRows(write: ShardWriteBox, rows: ShardRow[]): ShardStep
  shardFailed(write: ShardWriteBox, state: string, number: number, message: string, isBroken: boolean): ShardStep
  shardUnnamed(write: ShardWriteBox, advice: string): ShardStep
  shardShared(write: ShardWriteBox, advice: string): ShardStep
  shardInUse(write: ShardWriteBox): ShardStep
  shardUnread(write: ShardWriteBox): ShardStep
  shardLeft(write: ShardWriteBox): number
  openNumbers(file: string, tenant: string, table: string): NumbersBox
  numbersFromVariable(given: OrderKeys | undefined, tenant: string, table: string): NumbersBox
  numbersFromKeys(versions: number[], keys: Uint8Array[], sealWith: number, tenant: string, table: string): NumbersBox
  numbersWithVersion(numbers: NumbersBox, version: number): NumbersBox
  numbersVersion(numbers: NumbersBox): number
  seal(numbers: NumbersBox, id: bigint): Uint8Array
  unseal(numbers: NumbersBox, orderNo: Uint8Array): bigint
  sealWide(numbers: NumbersBox, id: bigint): Uint8Array
  unsealWide(numbers: NumbersBox, orderNo: Uint8Array): bigint
  seal8(numbers: NumbersBox, id: bigint): bigint
  unseal8(numbers: NumbersBox, orderNo: bigint): bigint
  sealAll(numbers: NumbersBox, ids: BigUint64Array): Uint8Array
  unsealAll(numbers: NumbersBox, orderNos: Uint8Array): BigUint64Array
  seal8All(numbers: NumbersBox, ids: BigUint64Array): BigUint64Array
  unseal8All(numbers: NumbersBox, orderNos: BigUint64Array): BigUint64Array
  sealText(numbers: NumbersBox, id: bigint): string
  unsealText(numbers: NumbersBox, text: string): bigint
  sealWideText(numbers: NumbersBox, id: bigint): string
  unsealWideText(numbers: NumbersBox, text: string): bigint
  seal8Text(numbers: NumbersBox, id: bigint): string
  unseal8Text(numbers: NumbersBox, text: string): bigint
}

export const native = load() as Native
