// SQLite libraries that programs use beside keymill.
import { createRequire } from 'node:module'
import { join } from 'node:path'

/** Both libraries load on Node 22 and later; better-sqlite3's binary crashes an older one. */
export const skip = Number.parseInt(process.versions.node) < 22 && 'better-sqlite3 and node:sqlite need Node 22'

/** Each opens a file and answers with a connection: `exec(sql)`, `prepare(sql).get()`, `close()`. */
export const libraries = {
  'better-sqlite3': (path) => {
    // A development dependency, which is not installed beside the package.
    const Database = createRequire(join(process.env.KEYMILL_ROOT, 'bindings', 'node', 'package.json'))('better-sqlite3')
    return patient(new Database(path))
  },
  'node:sqlite': (path) => {
    const { DatabaseSync } = createRequire(import.meta.url)('node:sqlite')
    return patient(new DatabaseSync(path))
  },
}

function patient(connection) {
  connection.exec('PRAGMA busy_timeout=60000')
  return connection
}
