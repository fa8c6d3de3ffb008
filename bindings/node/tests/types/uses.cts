import keymill = require('keymill')

const id: bigint = keymill.open('memory:').segment('x').next()
void id
