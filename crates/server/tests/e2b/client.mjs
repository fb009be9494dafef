// E2B's client from npm, as it is: node client.mjs NODE_MODULES

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(pathToFileURL(process.argv[2] + '/'))
const { Sandbox, CommandExitError, NotFoundError, FileNotFoundError } = require('e2b')

let passed = 0
async function test(name, work) {
  await work()
  passed += 1
  console.log(`ok ${passed} - ${name}`)
}

const box = await Sandbox.create({ timeoutMs: 300_000, metadata: { from: 'npm' }, envs: { MARK: 'here' } })
try {
  await test('a command gives its output', async () => {
    const done = await box.commands.run('echo $MARK; echo err >&2')
    assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['here\n', 'err\n', 0])
  })
  await test('a status is an exception', async () => {
    await assert.rejects(box.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
  })
  await test('output arrives while it runs', async () => {
    const seen = []
    await box.commands.run('echo one; sleep 0.5; echo two', { onStdout: (text) => seen.push(text) })
    assert.deepEqual(seen, ['one\n', 'two\n'])
  })
  await test('background commands take input and end', async () => {
    const handle = await box.commands.run('cat', { background: true, stdin: true })
    await box.commands.sendStdin(handle.pid, 'hello\n')
    await box.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'hello\n')
  })
  await test('killing takes it away', async () => {
    const handle = await box.commands.run('sleep 300', { background: true, timeoutMs: 0 })
    assert((await box.commands.list()).some((process) => process.pid === handle.pid))
    assert.equal(await handle.kill(), true)
    assert(!(await box.commands.list()).some((process) => process.pid === handle.pid))
  })
  await test('files go in and out', async () => {
    await box.files.write('a/b.txt', 'text ä€')
    assert.equal(await box.files.read('a/b.txt'), 'text ä€')
    const bytes = new Uint8Array(1_000_000).map((_, at) => at % 251)
    await box.files.write('bytes', bytes.buffer)
    assert.deepEqual(await box.files.read('bytes', { format: 'bytes' }), bytes)
  })
  await test('entries are listed, moved and removed', async () => {
    assert((await box.files.list('a')).some((entry) => entry.name === 'b.txt'))
    await box.files.rename('a/b.txt', 'a/c.txt')
    assert.equal(await box.files.exists('a/b.txt'), false)
    await box.files.remove('a')
    await assert.rejects(box.files.read('a/c.txt'), (error) => error instanceof NotFoundError || error instanceof FileNotFoundError)
  })
  await test('a watch tells what happens', async () => {
    await box.files.makeDir('watched')
    const seen = []
    const handle = await box.files.watchDir('watched', (event) => seen.push(event.name))
    await box.files.write('watched/x', '1')
    for (let turn = 0; turn < 100 && !seen.includes('x'); turn += 1) await new Promise((done) => setTimeout(done, 100))
    assert(seen.includes('x'))
    await handle.stop()
  })
  await test('a terminal echoes', async () => {
    let seen = ''
    const handle = await box.pty.create({ cols: 80, rows: 24, onData: (data) => { seen += Buffer.from(data).toString() } })
    await box.pty.sendInput(handle.pid, Buffer.from('echo mark$((40+2))\n'))
    for (let turn = 0; turn < 100 && !seen.includes('mark42'); turn += 1) await new Promise((done) => setTimeout(done, 100))
    assert(seen.includes('mark42'), seen)
    await box.pty.kill(handle.pid)
  })
  await test('it is listed, paused and goes on', async () => {
    const page = await Sandbox.list({ query: { metadata: { from: 'npm' } } }).nextItems()
    assert(page.some((info) => info.sandboxId === box.sandboxId))
    await box.files.write('kept', 'still here')
    await box.pause()
    assert.equal(await box.isRunning(), false)
    await box.connect()
    assert.equal(await box.files.read('kept'), 'still here')
  })
  await test('a snapshot starts another', async () => {
    const snapshot = await box.createSnapshot()
    const other = await Sandbox.create(snapshot.snapshotId)
    try {
      assert.equal(await other.files.read('kept'), 'still here')
    } finally {
      await other.kill()
    }
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  })
} finally {
  await box.kill()
}
assert.equal(await box.isRunning(), false)
console.log(`${passed} passed`)
