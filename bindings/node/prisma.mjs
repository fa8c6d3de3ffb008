import './unbundled.mjs'
import prisma from './dist/prisma.js'

export const { keymill } = prisma
