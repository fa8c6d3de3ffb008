// The variables that name a mill, as this context has them: a worker and a test of Jest have a `process.env` of their own, which the
// environment of the process does not show.

/** As the native part takes them. */
export interface Variables {
  config?: string
  password?: string
}

/** They are read anew for each mill. `undefined`: Deno denies them without `--allow-env`, and the environment of the process counts. */
export function variables(): Variables | undefined {
  const found: Variables = {}
  try {
    const { KEYMILL_CONFIG: config, KEYMILL_PASSWORD: password } = process.env
    if (config !== undefined) found.config = config
    if (password !== undefined) found.password = password
    return found
  } catch {
    return undefined
  }
}

/** The order keys as this context has them. `undefined`: as in `variables`. */
export function orderKeys(): { keys?: string } | undefined {
  try {
    const { KEYMILL_ORDER_KEYS: keys } = process.env
    return keys === undefined ? {} : { keys }
  } catch {
    return undefined
  }
}
