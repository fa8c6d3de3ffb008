import './unbundled.mjs'
import nest from './dist/nest.js'

export const { KeymillHealthIndicator, KeymillModule, InjectSource, getSourceToken } = nest
