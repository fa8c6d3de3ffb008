// Leaves its mill open: the process ends by itself, but not before the promise is settled.
import { open } from 'keymill'

const ids = open(process.argv[2]).segment('s', { step: 100, deadline: '60s' })
console.log(String(ids.next()))
ids.nextAsync().then((id) => console.log(String(id)))
