// NestJS: one mill an application, sources by injection, closed with the application, and its state for Terminus.
import { variables } from './environment'
import { argument, KeymillError, shown } from './error'
import { use } from './lazy'
import { Mill, openAsync, written, type SourceOptions } from './mill'
import { native, type SourceStats } from './native'

// The parts of Nest that are used here, in its versions 11 and 12.
interface Nest {
  Inject(token: unknown): ParameterDecorator & PropertyDecorator
  Module(metadata: object): ClassDecorator
}
const { Inject, Module }: Nest = require('@nestjs/common')

/** A module as Nest takes it. */
export interface KeymillDynamicModule {
  module: typeof KeymillModule
  global: boolean
  imports: any[]
  providers: any[]
  exports: any[]
}
export interface KeymillModuleOptions {
  /** The configuration of the mill; nothing: what KEYMILL_CONFIG says. */
  config?: string | undefined
  /** `false`: `lazy` sources and the modules of ORMs do not take from this mill. They do, unless the program shares another mill. */
  share?: boolean | undefined
}
export interface KeymillModuleAsyncOptions {
  imports?: any[]
  inject?: any[]
  useFactory: (...args: any[]) => KeymillModuleOptions | Promise<KeymillModuleOptions>
}

const OPTIONS = Symbol.for('keymill.nest.options')
const SOURCES = Symbol.for('keymill.nest.sources')

interface Wanted {
  readonly spec: string
  readonly options: SourceOptions
}
/** What `@InjectSource` was asked for, by its token. A class says so when its file is loaded, which is before the application begins. */
const wanted = new Map<string, Wanted>()

/** The token of a source, for a test that puts another one in its place. */
export function getSourceToken(spec: string, options: SourceOptions = {}): string {
  if (typeof spec !== 'string') throw argument(`@InjectSource takes a name such as 'orders', not ${shown(spec)}`)
  const whole = spec.includes(':') ? spec : `segment:${spec}`
  const { as, text } = written(whole, options)
  const token = `keymill ${text}${as === undefined ? '' : ` as ${String(as)}`}`
  wanted.set(token, { spec: whole, options })
  return token
}

/** Injects a source: `@InjectSource('orders') orders: Source` is `segment:orders`; any other spec has its kind, as `snowflake:tx`. */
export function InjectSource(spec: string, options: SourceOptions = {}): ParameterDecorator & PropertyDecorator {
  return Inject(getSourceToken(spec, options))
}

/** What has figures: every source. */
interface Figures {
  stats(): SourceStats
  /** A business source takes a key. */
  nextAsync(key: string): Promise<unknown>
}

/** The mill of an application: `imports: [KeymillModule.forRoot({ config: 'mysql://…' })]`. It is closed when the application is, after its last request. */
export class KeymillModule {
  readonly #mill: Mill

  /** Called by Nest. */
  constructor(mill: Mill) {
    this.#mill = mill
  }

  static forRoot(options: KeymillModuleOptions | string = {}): KeymillDynamicModule {
    return moduleOf([], { provide: OPTIONS, useValue: typeof options === 'string' ? { config: options } : options })
  }

  static forRootAsync({ imports = [], inject = [], useFactory }: KeymillModuleAsyncOptions): KeymillDynamicModule {
    if (typeof useFactory !== 'function') throw argument(`KeymillModule.forRootAsync takes { inject, useFactory }, and useFactory is ${shown(useFactory)}`)
    return moduleOf(imports, { provide: OPTIONS, inject, useFactory })
  }

  /** Called by Nest, when it has answered the last request. */
  async onApplicationShutdown(): Promise<void> {
    await this.#mill.closeAsync()
  }
}
Inject(Mill)(KeymillModule, undefined as never, 0)
Module({})(KeymillModule)

function moduleOf(imports: any[], options: object): KeymillDynamicModule {
  const sources = () => [...wanted].map(([token, source]) => ({ provide: token, inject: [Mill, SOURCES], useFactory: (mill: Mill, all: Figures[]) => made(mill, all, source) }))
  return {
    module: KeymillModule,
    global: true,
    imports,
    // Nest reads them when the application begins, and by then every class has said what it wants.
    get providers() {
      return [options, { provide: SOURCES, useFactory: () => [] }, { provide: Mill, inject: [OPTIONS], useFactory: opened }, KeymillHealthIndicator, ...sources()]
    },
    get exports() {
      return [Mill, KeymillHealthIndicator, ...wanted.keys()]
    },
  }
}

async function opened(options: KeymillModuleOptions): Promise<Mill> {
  if (typeof options !== 'object' || options === null) throw argument(`the options of KeymillModule are { config: 'mysql://…' }, not ${shown(options)}`)
  const { config, share = true, ...unknown } = options
  const [other] = Object.keys(unknown)
  if (other !== undefined) throw argument(`KeymillModule has no option \`${other.slice(0, 40)}\`; it has config and share`)
  // Each instance of an application would count for itself, in a file of its own. Deno may deny the variables, and they count nevertheless.
  const found = variables()
  if (config === undefined && found !== undefined && found.config === undefined) {
    throw new KeymillError('INVALID_CONFIG', "KeymillModule.forRoot() names no mill, and KEYMILL_CONFIG is not set; write forRoot({ config: 'mysql://…' }), or { config: 'sqlite:keymill.db' } for a file of one machine")
  }
  const mill = await openAsync(config)
  for (const { spec, options } of wanted.values()) {
    try {
      mill.source(spec, options as any)
    } catch (e) {
      // Nest calls no hook of an application that does not start.
      await mill.closeAsync()
      throw e instanceof KeymillError ? new KeymillError(e.code, `@InjectSource('${spec.slice(0, 80)}'): ${e.message}`, e.retryAfterMs) : e
    }
  }
  if (share && !native.isSharedOpen()) use(mill)
  return mill
}

function made(mill: Mill, all: Figures[], { spec, options }: Wanted): Figures {
  const source = mill.source(spec, options as any) as Figures
  all.push(source)
  return source
}

/** The state of the application's sources for Terminus: `health.check([() => keymill.isHealthy('keymill')])`. The store is not asked. */
export class KeymillHealthIndicator {
  readonly #sources: Figures[]
  readonly #asked = new Set<Figures>()

  /** Called by Nest. */
  constructor(sources: Figures[]) {
    this.#sources = sources
  }

  /** Down while a source has no number left and cannot get any. */
  isHealthy<Key extends string = 'keymill'>(key: Key = 'keymill' as Key): Record<Key, { status: 'up' | 'down' } & Record<string, any>> {
    const empty: Record<string, string> = {}
    for (const source of this.#sources) {
      const { source: label, left, refusal } = source.stats()
      if (refusal === undefined || left > 0) continue
      empty[label] = refusal
      this.#ask(source)
    }
    const status = Object.keys(empty).length === 0 ? 'up' : 'down'
    return { [key]: { status, ...empty } } as Record<Key, { status: 'up' | 'down' } & Record<string, any>>
  }

  /** A source that is cold asks its store for no one. Where a balancer sends no requests while it is down, it would stay so: it is asked for an id. */
  #ask(source: Figures): void {
    if (this.#asked.has(source)) return
    this.#asked.add(source)
    source.nextAsync('health').catch(() => undefined).finally(() => this.#asked.delete(source))
  }
}
Inject(SOURCES)(KeymillHealthIndicator, undefined as never, 0)
