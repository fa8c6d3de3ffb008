export * from './dist/typeorm.js'
