// Comes before all other code of the package, which needs `require`: a bundle of ES modules has none.
import { bundlers } from './dist/bundlers.js'

if (import.meta.url?.startsWith('file:') && !import.meta.url.endsWith('/unbundled.mjs')) {
  throw new Error(`keymill's native library cannot be found from ${import.meta.url}.\n${bundlers}`)
}
