// Finds the native library for this process in the package, and loads it.
import { closeSync, existsSync, fstatSync, openSync, readSync, readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { bundlers } from './bundlers'

/** The machines that Node names, as file names spell them, with their numbers in an ELF header. */
const machines: Record<string, { name: string; elf: number }> = { x64: { name: 'x86_64', elf: 62 }, arm64: { name: 'aarch64', elf: 183 } }

/** The systems that Node names, as file names spell them. */
const systems: Record<string, string> = { linux: 'linux', darwin: 'macos', win32: 'windows' }

/** What the headers of an ELF file say. */
interface Elf {
  machine: number
  /** The program that loads its libraries (`PT_INTERP`): each libc has its own. */
  interpreter: string | undefined
  /** How long the file is. */
  size: number
  /** How long it is by its headers. */
  end: number
}

/** Reads the headers of an ELF file of a 64-bit little-endian machine; `undefined` if it is none. */
function elf(file: string): Elf | undefined {
  const descriptor = openSync(file, 'r')
  try {
    const { size } = fstatSync(descriptor)
    // Shorter where the file ends.
    const part = (at: number, length: number) => {
      const bytes = Buffer.alloc(Math.max(0, Math.min(length, size - at)))
      return bytes.subarray(0, bytes.length && readSync(descriptor, bytes, 0, bytes.length, at))
    }
    const header = part(0, 64)
    if (header.length < 64 || header.readUInt32BE(0) !== 0x7f454c46 || header[4] !== 2 || header[5] !== 1) return undefined
    const number = (bytes: Buffer, at: number) => Number(bytes.readBigUInt64LE(at))
    const segments = number(header, 32)
    const [width, count] = [header.readUInt16LE(54), header.readUInt16LE(56)]
    const table = part(segments, width * count)
    let end = Math.max(segments + width * count, number(header, 40) + header.readUInt16LE(58) * header.readUInt16LE(60))
    let interpreter: string | undefined
    for (let at = 0; width >= 56 && at + width <= table.length; at += width) {
      const [type, from, length] = [table.readUInt32LE(at), number(table, at + 8), number(table, at + 32)]
      end = Math.max(end, from + length)
      if (type === 3) interpreter = part(from, Math.min(length, 4096)).toString('latin1').replace(/\0.*/s, '')
    }
    return { machine: header.readUInt16LE(18), interpreter, size, end }
  } finally {
    closeSync(descriptor)
  }
}

/** The interpreter of this process; `undefined` for static programs, and where `/proc` cannot be read. */
export function interpreter(): string | undefined {
  try {
    return elf('/proc/self/exe')?.interpreter
  } catch {
    return undefined
  }
}

/** The endings of the libraries that this process may load, by its libc. Distributions carry both, so no file of theirs is asked. */
export function endings(interpreter: string | undefined): string[] {
  if (process.platform !== 'linux') return ['']
  const name = basename(interpreter ?? '')
  if (name.startsWith('ld-musl-')) return ['-musl']
  return name.startsWith('ld-linux') ? [''] : ['', '-musl']
}

/** Why a file is no library for this machine; `undefined` if it may be one. The loader of glibc dies of a truncated file. */
function defect(file: string, machine: number | undefined): string | undefined {
  if (process.platform !== 'linux') return existsSync(file) ? undefined : 'no such file'
  let found
  try {
    found = elf(file)
  } catch (e) {
    return (e as NodeJS.ErrnoException).code === 'ENOENT' ? 'no such file' : (e as Error).message
  }
  if (found === undefined) return 'it is no library for 64-bit Linux'
  if (found.size < found.end) return `it is truncated: ${found.size} bytes instead of ${found.end}`
  if (machine !== undefined && found.machine !== machine) return 'it is a library for another architecture'
  return undefined
}

/** Loads the library for this process. The error lists each file that was looked for, why it was not loaded, and what to do. */
export function load(): unknown {
  const machine = machines[process.arch]
  const platform = `${systems[process.platform] ?? process.platform}-${machine?.name ?? process.arch}`
  const folder = join(__dirname, '..', 'native')
  const loader = interpreter()
  const reasons: string[] = []
  let cause: unknown
  for (const ending of endings(loader)) {
    const file = join(folder, `keymill.${platform}${ending}.node`)
    let reason = defect(file, machine?.elf)
    if (reason === undefined) {
      try {
        return require(file)
      } catch (e) {
        cause = e
        reason = (e as Error).message
      }
    }
    reasons.push(`  ${file}: ${reason}`)
  }
  const libc = process.platform !== 'linux' ? '' : loader === undefined ? ', libc unknown' : `, libc of ${loader}`
  throw new Error(`keymill has no native library for this process (${platform}${libc}). Looked for:\n${reasons.join('\n')}\n${advice(folder, cause)}`, { cause })
}

/** Node was started so that no library, or none of this folder, may be loaded. */
function isForbidden(folder: string, cause: unknown): boolean {
  // Only where Node runs with `--permission`; its type is newer than the oldest Node.
  const { permission } = process as { permission?: { has(scope: string, path?: string): boolean } }
  return (cause as NodeJS.ErrnoException | undefined)?.code === 'ERR_DLOPEN_DISABLED' || permission?.has('fs.read', folder) === false
}

function advice(folder: string, cause: unknown): string {
  if (isForbidden(folder, cause)) {
    return `Node forbids it. Start node without --no-addons; where it runs with --permission, add --allow-addons and --allow-fs-read=${dirname(folder)}`
  }
  let held: string[]
  try {
    held = readdirSync(folder)
  } catch {
    return bundlers
  }
  const holds = `This package holds ${held.length === 0 ? 'no library' : held.sort().join(', ')}.`
  const needs =
    'keymill runs on Linux: x64 and arm64, with glibc 2.17 or later or with musl 1.2 or later; for development on Windows 10 or later: x64; as a preview on macOS 11 or later.'
  if (cause === undefined) return `${holds} ${needs}\nInstall the package again, from a release; on other machines build it from source (bindings/node/build.mjs).`
  return `${holds} ${needs}\n${bundlers}`
}
