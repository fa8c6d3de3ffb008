// Leaves its mill open: the process ends by itself, but not before the promise is settled. CONFIG [business]
import { open } from 'keymill'

const [config, kind = 'segment'] = process.argv.slice(2)
const options = { segment: 'min_step=100', business: 'counters=65536' }
const ids = open(config).source(`${kind}:s?${options[kind]}&deadline=60s`)
const number = (id) => console.log(String(ids.parse(id).number))
number(ids.next('key'))
ids.nextAsync('another key').then(number)
