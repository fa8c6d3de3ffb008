import './unbundled.mjs'
import prisma8 from './dist/prisma8.js'

export const { keymill } = prisma8
