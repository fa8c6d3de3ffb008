import { definePrismaConfig } from '@prisma/cli-engine'
import { defineConfig } from '@prisma/orm-postgres/config'
import { keymill } from 'keymill/prisma8'

export default definePrismaConfig({
  orm: defineConfig({ contract: process.env.CONTRACT ?? './contract.prisma', extensions: [keymill()], db: { connection: process.env.DATABASE_URL! } }),
})
