// What the tests of frameworks share. Each file runs on one database: KEYMILL_TEST_DATABASE is `sqlite`, or a URL of MariaDB or PostgreSQL.
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

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

/** Runs `work`, during which the event loop has to go on; says its worst gap. */
export async function loopGoesOn(t: { diagnostic(text: string): void }, work: () => Promise<unknown>): Promise<void> {
  let turns = 0
  let worst = 0
  let last = performance.now()
  const timer = setInterval(() => {
    turns++
    worst = Math.max(worst, performance.now() - last)
    last = performance.now()
  }, 5)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  t.diagnostic(`the event loop while the store was silent: ${turns} turns of a timer of 5 ms, worst gap ${worst.toFixed(0)} ms`)
  if (turns < 4) throw new Error(`the event loop stood still: ${turns} turns`)
}

/** Runs this file `count` times more, each with `KEYMILL_TEST_CHILD`, and answers with what they print, in words. */
export async function children(count: number, file: string): Promise<string[]> {
  const outputs = Array.from({ length: count }, () => promisify(execFile)(process.execPath, [fileURLToPath(file)], { env: { ...process.env, KEYMILL_TEST_CHILD: 'yes', NODE_TEST_CONTEXT: undefined } }))
  return (await Promise.all(outputs)).flatMap(({ stdout }) => stdout.trim().split(/\s+/))
}
