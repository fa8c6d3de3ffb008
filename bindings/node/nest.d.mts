export * from './dist/nest.js'
