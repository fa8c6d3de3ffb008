// Prisma 8, whose release candidate has no `$extends`: an extension gives the contract a function for defaults, `keymill("segment:orders")`, and
// the client a generator that makes the ids. Prisma calls the generator for each row, in nested creates too, and refuses a client without it.
import { ApplicationMill, checkFields, FieldIds, type As } from './application'
import { argument, KeymillError, shown } from './error'
import { storeOfVariable } from './prisma'

export interface Prisma8Options {
  /** The configuration of a mill, such as `postgres://app@db/ids`. Left out: the mill of `use` or of KEYMILL_CONFIG, else the database of DATABASE_URL. */
  store?: string
}
/** An extension as the configuration and the client of Prisma 8 take it. */
export interface Prisma8Extension {
  readonly kind: 'extension'
  readonly id: 'keymill'
  readonly familyId: 'sql'
  readonly targetId: 'postgres'
  readonly version: string
  /**
   * Opens the mill and takes one id of each of these sources, so that no create waits for the first numbers: Prisma's generators are
   * synchronous, and block the event loop while they wait.
   */
  ready(...specs: string[]): Promise<void>
  /** Closes the mill in the application's database, and gives back what it has reserved. */
  close(): Promise<void>
  create(): { familyId: 'sql'; targetId: 'postgres' }
  codecs(): never[]
  readonly controlMutationDefaults: any
  mutationDefaultGenerators(): any[]
}

/** How the columns of PostgreSQL hold an id. An integer of 32 bits ends too early for a column that is declared now. */
const COLUMNS: Record<string, As> = { 'pg/int8@1': 'bigint', 'pg/text@1': 'string', 'sql/varchar@1': 'string' }

/** What the contract keeps of a default. */
interface Params {
  spec: string
  field: string
  as: As
}

/** An extension of Prisma 8: `extensions: [keymill()]` in `prisma.config.ts` and in `postgres({ … })`. An id that is set is kept. */
export function keymill(options: Prisma8Options = {}): Prisma8Extension {
  const { store } = options
  if (store !== undefined && typeof store !== 'string') throw argument(`store must be a configuration such as 'postgres://app@db/ids', not ${shown(store)}`)
  const mill = new ApplicationMill(() => store ?? storeOfVariable("keymill({ store: 'postgres://…' })"), store !== undefined)
  const fields = new Map<string, FieldIds>()
  const generate = (params?: any) => {
    const { field, spec } = params as Params
    // Models of two namespaces may have one name.
    const key = `${field} ${spec}`
    let ids = fields.get(key)
    if (ids === undefined) fields.set(key, (ids = new FieldIds(mill, fieldOf(params as Params))))
    return ids.now() ?? ids.wait()
  }
  return {
    kind: 'extension',
    id: 'keymill',
    familyId: 'sql',
    targetId: 'postgres',
    version: '1',
    ready: async (...specs) => {
      const opened = await mill.mill()
      await Promise.all(specs.map(async (spec) => void (await opened.source(spec).nextAsync())))
    },
    close: () => mill.close(),
    create: () => ({ familyId: 'sql', targetId: 'postgres' }),
    codecs: () => [],
    controlMutationDefaults: {
      defaultFunctionRegistry: new Map([['keymill', { signature: SIGNATURE, lower, usageSignatures: ['keymill("segment:orders")'] }]]),
      generatorDescriptors: [{ id: 'keymill', applicableCodecIds: Object.keys(COLUMNS) }],
    },
    mutationDefaultGenerators: () => [{ id: 'keymill', generate, stability: 'field' }],
  }
}

/** Any argument is taken here, and judged by `lower`, whose error says what to write. */
const SIGNATURE = {
  documentation: 'Gives an id of this source of keymill when a value is not supplied.',
  positional: [
    {
      key: 'spec',
      documentation: 'The source, such as `segment:orders`.',
      type: { kind: 'str', label: 'string', parse: (arg: any) => ({ ok: true, value: arg?.syntax?.kind === 'StringLiteralExpr' ? arg.value() : undefined }) },
    },
  ],
}

/** Judges a default when the contract is made. */
function lower({ call, context }: any): unknown {
  const field = `${context.modelName}.${context.fieldName}`
  try {
    const spec = call.args.spec
    if (typeof spec !== 'string') throw argument(`${field}: write the source as a text, @default(keymill("segment:orders"))`)
    if (spec.includes('{table}')) throw argument(`${field}: Prisma 8 does not tell the table of a model; write the source's name in the place of {table}`)
    const as = COLUMNS[context.columnCodecId]
    if (as === undefined) throw argument(`${field}: an id of keymill is a BigInt or a String`)
    const params: Params = { spec, field, as }
    checkFields([fieldOf(params)])
    return { ok: true, value: { kind: 'execution', generated: { kind: 'generator', id: 'keymill', params } } }
  } catch (e) {
    if (!(e instanceof KeymillError)) throw e
    return { ok: false, diagnostic: { code: 'PSL_INVALID_DEFAULT_FUNCTION_ARGUMENT', message: e.message, sourceId: context.sourceId, span: call.span } }
  }
}

function fieldOf({ spec, field, as }: Params) {
  return { where: field, spec, as, table: field.split('.')[0], isText: as === 'string' }
}
