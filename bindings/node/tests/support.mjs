// What the tests share.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

let number = 0
/** A store of its own that this process shares by name. */
export const fresh = () => `memory:test-${process.pid}-${++number}`

const scratches = []
process.on('exit', () => scratches.forEach((folder) => rmSync(folder, { recursive: true, force: true })))
/** A folder that goes with the process. */
export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), 'keymill-node-'))
  scratches.push(folder)
  return folder
}

/** A server that accepts and never answers. */
export async function blackHole() {
  const sockets = new Set()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).resume()
  })
  await new Promise((up) => server.listen(0, '127.0.0.1', up))
  const end = () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  }
  return { port: server.address().port, end }
}

/** Runs a program of `programs/` to its end. */
export function run(program, args = [], { flags = [], env = {}, onLine } = {}) {
  const file = fileURLToPath(new URL(`programs/${program}`, import.meta.url))
  const child = spawn(process.execPath, [...flags, file, ...args], { env: { ...process.env, ...env } })
  let out = ''
  let err = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    out += text
    onLine?.(text, child)
  })
  child.stderr.setEncoding('utf8').on('data', (text) => (err += text))
  const done = new Promise((end) => child.on('close', (code, signal) => end({ code, signal, out, err })))
  return { child, done }
}

/** Waits for a condition; there is a deadline, and no other sleep in these tests. */
export async function until(condition, ms = 180_000) {
  const end = Date.now() + ms
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${condition}`)
    await new Promise((done) => setTimeout(done, 5))
  }
}
