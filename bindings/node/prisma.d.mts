export * from './dist/prisma.js'
