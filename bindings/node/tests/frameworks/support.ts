// What the tests of frameworks share. Each file runs on one database: KEYMILL_TEST_DATABASE is `sqlite`, or a URL of MariaDB or PostgreSQL.
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const database = process.env.KEYMILL_TEST_DATABASE ?? 'sqlite'
export const kind = database.startsWith('mysql') ? 'mysql' : database.startsWith('postgres') ? 'postgres' : 'sqlite'

const folder = mkdtempSync(join(tmpdir(), 'keymill-frameworks-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
let number = 0
/** A file of its own. */
export const file = (name: string) => join(folder, `${++number}-${name}`)

/** What the promise is rejected with. */
export async function rejection(work: () => Promise<unknown>): Promise<Error & { code?: string }> {
  try {
    await work()
  } catch (e) {
    return e as Error
  }
  throw new Error('it was not rejected')
}

/** A server that accepts and never answers. */
export async function blackHole() {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).resume()
  })
  await new Promise<void>((up) => server.listen(0, '127.0.0.1', up))
  const end = () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  }
  return { port: (server.address() as AddressInfo).port, end }
}

/** Runs `work` and answers with how many turns of the event loop came meanwhile. */
export async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0
  const timer = setInterval(() => turns++, 5)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  return turns
}
