// Takes ids and writes rows into the same file with another SQLite library, which opens and closes the file in every round:
// CONFIG PATH LIBRARY ROUNDS. Prints the ids.
import { open } from 'keymill'
import { libraries } from '../libraries.mjs'

const [config, path, library, rounds] = process.argv.slice(2)
const mill = open(config)
const orders = mill.segment('orders', { step: 5, max_step: 5, deadline: '60s' })
const ids = []
for (let round = 0; round < Number(rounds); round++) {
  const app = libraries[library](path)
  app.exec("INSERT INTO app (text) VALUES ('row')")
  ids.push(...orders.take(5))
  app.prepare('SELECT count(*) AS rows FROM app').get()
  app.close()
}
mill.close()
console.log(ids.join(' '))
