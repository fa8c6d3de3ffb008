import './unbundled.mjs'
import typeorm from './dist/typeorm.js'

export const { KeymillId, KeymillSubscriber } = typeorm
