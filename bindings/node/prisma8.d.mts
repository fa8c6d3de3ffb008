export * from './dist/prisma8.js'
