// 33 cases: files and directories, their contents, kinds, owners and names.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { bytesOf, e2b, headersOf, place, shared } from './helper.mjs'

const { FileNotFoundError, FileType, InvalidArgumentError, NotFoundError, SandboxError } = e2b

const box = await shared()

/** Bytes as the client takes them. */
function bufferOf(bytes) {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)
}

test('text goes in and out', async (t) => {
  const path = `${await place(t, box)}/a.txt`
  const told = await box.files.write(path, 'hello ä€😀')
  assert.deepEqual([told.name, told.path, told.type], ['a.txt', path, FileType.FILE])
  assert.equal(await box.files.read(path), 'hello ä€😀')
})

test('an empty file is one', async (t) => {
  const path = `${await place(t, box)}/empty`
  await box.files.write(path, '')
  assert.equal(await box.files.read(path), '')
  assert.deepEqual(await box.files.read(path, { format: 'bytes' }), new Uint8Array(0))
  assert.equal((await box.files.read(path, { format: 'blob' })).size, 0)
  assert.equal((await bytesOf(await box.files.read(path, { format: 'stream' }))).length, 0)
})

test('bytes go in and out, by form and as they are', async (t) => {
  const path = `${await place(t, box)}/bytes`
  for (const useOctetStream of [false, true]) {
    for (const size of [1, 65_536, 3_000_001]) {
      const bytes = randomBytes(size)
      await box.files.write(path, bufferOf(bytes), { useOctetStream })
      assert(bytes.equals(await box.files.read(path, { format: 'bytes' })), `${size} ${useOctetStream}`)
    }
  }
})

test('a blob goes in and out', async (t) => {
  const path = `${await place(t, box)}/blob`
  await box.files.write(path, new Blob(['one ', new Uint8Array([0, 255]), ' two']))
  const blob = await box.files.read(path, { format: 'blob' })
  assert(blob instanceof Blob)
  assert.deepEqual(Buffer.from(await blob.arrayBuffer()), Buffer.from('one \0\xff two', 'latin1'))
})

test('a stream goes in and out', async (t) => {
  const path = `${await place(t, box)}/stream`
  const bytes = randomBytes(1 << 20)
  const pieces = function* () { for (let at = 0; at < bytes.length; at += 1 << 16) yield bytes.subarray(at, at + (1 << 16)) }
  await box.files.write(path, ReadableStream.from(pieces()))
  assert(bytes.equals(await bytesOf(await box.files.read(path, { format: 'stream' }))))
})

test('a stream that nobody reads to its end is let go', async (t) => {
  const path = `${await place(t, box)}/big`
  await box.files.write(path, bufferOf(Buffer.alloc(8 << 20)))
  for (let turn = 0; turn < 5; turn += 1) {
    const reader = (await box.files.read(path, { format: 'stream' })).getReader()
    assert((await reader.read()).value.length > 0)
    await reader.cancel()
  }
  assert.equal((await box.files.getInfo(path)).size, 8 << 20)
})

test('fifty megabytes', async (t) => {
  const path = `${await place(t, box)}/big`
  const bytes = randomBytes(50 << 20)
  await box.files.write(path, bufferOf(bytes), { requestTimeoutMs: 300_000 })
  assert.equal((await box.files.getInfo(path)).size, bytes.length)
  assert(bytes.equals(await bytesOf(await box.files.read(path, { format: 'stream', requestTimeoutMs: 300_000 }))))
})

test('compressed both ways', async (t) => {
  const path = `${await place(t, box)}/gzip`
  const text = 'again and again ä '.repeat(10_000)
  await box.files.write(path, text, { gzip: true })
  assert.equal(await box.files.read(path), text)
  assert.equal(await box.files.read(path, { gzip: true }), text)
  const answer = await fetch(`${process.env.E2B_SANDBOX_URL}/files?path=${path}`, { headers: { ...headersOf(box, 49983), 'Accept-Encoding': 'gzip' } })
  assert.equal(answer.headers.get('content-encoding'), 'gzip')
  assert.equal(await answer.text(), text)
})

test('a stream is compressed on its way', async (t) => {
  const path = `${await place(t, box)}/gzip-stream`
  await box.files.write(path, new Blob(['a'.repeat(1 << 20)]).stream(), { gzip: true })
  assert.equal((await box.files.getInfo(path)).size, 1 << 20)
})

test('writing again replaces and keeps the mode', async (t) => {
  const path = `${await place(t, box)}/a`
  await box.files.write(path, 'long content')
  await box.commands.run(`chmod 600 ${path}`)
  await box.files.write(path, 'x')
  assert.equal(await box.files.read(path), 'x')
  assert.equal((await box.files.getInfo(path)).permissions, '-rw-------')
})

test('directories on the way are made', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/x/y/z.txt`, 'deep')
  assert.equal((await box.commands.run(`stat -c %U ${path}/x/y ${path}/x/y/z.txt`)).stdout, 'user\nuser\n')
})

test('several files at once', async (t) => {
  const path = await place(t, box)
  const told = await box.files.write([
    { path: `${path}/one`, data: '1' },
    { path: `${path}/sub/two`, data: bufferOf(Buffer.from('22')) },
    { path: `${path}/three`, data: new Blob(['333']) },
  ])
  assert.deepEqual(told.map((entry) => entry.path), [`${path}/one`, `${path}/sub/two`, `${path}/three`])
  assert.equal(await box.files.read(`${path}/sub/two`), '22')
  assert.equal(await box.files.read(`${path}/three`), '333')
})

test('several files at once, with a stream among them', async (t) => {
  const path = await place(t, box)
  const told = await box.files.writeFiles([
    { path: `${path}/one`, data: 'text' },
    { path: `${path}/two`, data: new Blob(['streamed']).stream() },
  ])
  assert.deepEqual(told.map((entry) => entry.name), ['one', 'two'])
  assert.equal(await box.files.read(`${path}/two`), 'streamed')
})

test('no files at once is nothing', async () => {
  assert.deepEqual(await box.files.write([]), [])
})

test('paths are meant from home', async (t) => {
  t.after(() => box.files.remove('relative.txt'))
  const told = await box.files.write('relative.txt', 'at home')
  assert.equal(told.path, '/home/user/relative.txt')
  assert.equal(await box.files.read('/home/user/relative.txt'), 'at home')
  assert.equal(await box.files.read('~/relative.txt'), 'at home')
})

test('what is missing is not found', async () => {
  for (const path of ['/no/such/file', '/home/user/no-such-file', '/etc/hostname/x']) {
    for (const format of ['text', 'bytes', 'blob', 'stream']) {
      await assert.rejects(box.files.read(path, { format }), FileNotFoundError)
    }
    assert.equal(await box.files.exists(path), false)
    await assert.rejects(box.files.getInfo(path), (error) => error instanceof FileNotFoundError && error instanceof NotFoundError)
  }
})

test('a directory is no file', async (t) => {
  const path = await place(t, box)
  await assert.rejects(box.files.read(path), InvalidArgumentError)
  await assert.rejects(box.files.write(path, 'x'), InvalidArgumentError)
  await assert.rejects(box.files.write(`${path}/dir/`, 'x'), SandboxError)
})

test('what would never end is not waited for', async (t) => {
  const path = await place(t, box)
  await box.commands.run(`mkfifo ${path}/fifo; ln -s loop ${path}/loop`)
  await assert.rejects(box.files.read(`${path}/fifo`), InvalidArgumentError)
  await assert.rejects(box.files.read(`${path}/loop`), SandboxError)
})

test('files of the kernel are read', async () => {
  assert.match(await box.files.read('/proc/meminfo'), /^MemTotal/)
  assert.equal((await box.files.read('/sys/class/net/lo/address')).trim(), '00:00:00:00:00:00')
})

test('metadata stays beside a file', async (t) => {
  const path = `${await place(t, box)}/m`
  const told = await box.files.write(path, 'x', { metadata: { author: 'me', kind: 'a test' } })
  assert.deepEqual(told.metadata, { author: 'me', kind: 'a test' })
  assert.deepEqual((await box.files.getInfo(path)).metadata, { author: 'me', kind: 'a test' })
  await box.files.write(path, 'y', { metadata: { kind: 'other' } })
  assert.deepEqual((await box.files.getInfo(path)).metadata, { kind: 'other' })
})

test('metadata is for each of several, and as bytes, too', async (t) => {
  const path = await place(t, box)
  const files = [{ path: `${path}/a`, data: '1' }, { path: `${path}/b`, data: '2' }]
  for (const useOctetStream of [false, true]) {
    const metadata = { run: String(useOctetStream) }
    const told = await box.files.write(files, { metadata, useOctetStream })
    assert.deepEqual(told.map((entry) => entry.metadata), [metadata, metadata])
    assert.deepEqual((await box.files.list(path)).map((entry) => entry.metadata), [metadata, metadata])
  }
})

test('everything about an entry', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, '12345')
  const info = await box.files.getInfo(`${path}/a`)
  assert.deepEqual([info.name, info.path, info.type, info.size], ['a', `${path}/a`, FileType.FILE, 5])
  assert.deepEqual([info.owner, info.group, info.mode, info.permissions], ['user', 'user', 0o644, '-rw-r--r--'])
  assert(Math.abs(info.modifiedTime - Date.now()) < 600_000)
  assert.equal(info.metadata, undefined)
  assert.equal((await box.files.getInfo(path)).type, FileType.DIR)
})

// This client knows no links that lead somewhere: like E2B's own, the program
// inside gives them the type of what they lead to.
test('links are told with their target', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'x')
  await box.commands.run(`ln -s a ${path}/link; ln -s / ${path}/root; ln -s nowhere ${path}/broken`)
  const info = await box.files.getInfo(`${path}/link`)
  assert.deepEqual([info.type, info.symlinkTarget], [FileType.FILE, `${path}/a`])
  const kinds = Object.fromEntries((await box.files.list(path)).map((entry) => [entry.name, entry.type]))
  assert.deepEqual(kinds, { a: 'file', broken: 'symlink', link: 'file', root: 'dir' })
  assert.equal(await box.files.read(`${path}/link`), 'x')
})

test('listing is sorted and as deep as asked', async (t) => {
  const path = await place(t, box)
  await box.files.write(['b', 'a', 'd/e/f', 'd/c'].map((name) => ({ path: `${path}/${name}`, data: '' })))
  const names = async (depth) => (await box.files.list(path, { depth })).map((entry) => entry.path.slice(path.length + 1))
  assert.deepEqual(await names(), ['a', 'b', 'd'])
  assert.deepEqual(await names(1), ['a', 'b', 'd'])
  assert.deepEqual(await names(2), ['a', 'b', 'd', 'd/c', 'd/e'])
  assert.deepEqual(await names(5), ['a', 'b', 'd', 'd/c', 'd/e', 'd/e/f'])
})

test('a thousand entries are listed', async (t) => {
  const path = await place(t, box)
  await box.commands.run(`cd ${path} && seq -w 1 1000 | xargs touch`)
  const names = (await box.files.list(path)).map((entry) => entry.name)
  assert.deepEqual([names.length, names[0], names.at(-1)], [1000, '0001', '1000'])
})

test('what cannot be listed says so', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/file`, '')
  await assert.rejects(box.files.list(`${path}/nothing`), FileNotFoundError)
  await assert.rejects(box.files.list(`${path}/file`), InvalidArgumentError)
  await assert.rejects(box.files.list(path, { depth: 0 }), InvalidArgumentError)
})

test('directories are made once', async (t) => {
  const path = await place(t, box)
  assert.equal(await box.files.makeDir(`${path}/a/b/c`), true)
  assert.equal(await box.files.makeDir(`${path}/a/b/c`), false)
  await box.files.write(`${path}/file`, '')
  await assert.rejects(box.files.makeDir(`${path}/file`), InvalidArgumentError)
})

test('moving', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/d/a`, 'x')
  const info = await box.files.rename(`${path}/d/a`, `${path}/new/b`)
  assert.deepEqual([info.name, info.path, info.type], ['b', `${path}/new/b`, FileType.FILE])
  assert.equal(await box.files.exists(`${path}/d/a`), false)
  await box.files.rename(`${path}/new`, `${path}/newer`)
  assert.equal(await box.files.read(`${path}/newer/b`), 'x')
  await assert.rejects(box.files.rename(`${path}/d/a`, `${path}/c`), FileNotFoundError)
})

test('removing', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/d/e`, 'x')
  await box.files.remove(`${path}/d`)
  assert.equal(await box.files.exists(`${path}/d`), false)
  await box.files.remove(`${path}/d`)
  await box.commands.run(`mkdir ${path}/kept; ln -s kept ${path}/link`)
  await box.files.remove(`${path}/link`)
  assert.deepEqual((await box.files.list(path)).map((entry) => entry.name), ['kept'])
})

test('names of all kinds', async (t) => {
  const path = await place(t, box)
  const names = ['a b', 'ä€😀', 'a#b?c&d=e%20', '-rf', 'quote\'"', 'x'.repeat(255), 'back\\slash', 'a;b,c']
  for (const name of names) {
    await box.files.write(`${path}/${name}`, name)
    assert.equal(await box.files.read(`${path}/${name}`), name)
    assert.equal((await box.files.getInfo(`${path}/${name}`)).name, name)
  }
  const listed = (await box.files.list(path)).map((entry) => entry.name)
  assert.deepEqual(new Set(listed), new Set(names))
})

test('names of all kinds among several', async (t) => {
  const path = await place(t, box)
  const names = ['a b', 'ä€😀', 'a#b?c&d=e%20', '-rf', 'quote\'', 'sub dir/ü']
  const told = await box.files.write(names.map((name) => ({ path: `${path}/${name}`, data: name })))
  assert.deepEqual(told.map((entry) => entry.path), names.map((name) => `${path}/${name}`))
  for (const name of names) assert.equal(await box.files.read(`${path}/${name}`), name)
})

test('signed links read and write', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'signed')
  const get = async (options) => (await fetch(await box.downloadUrl(`${path}/a`, options))).text()
  assert.equal(await get(), 'signed')
  assert.equal(await get({ useSignatureExpiration: 60 }), 'signed')
  assert.equal(await get({ user: 'root' }), 'signed')
  const form = new FormData()
  form.append('file', new Blob(['sent']), 'up')
  const answer = await fetch(await box.uploadUrl(`${path}/up`), { method: 'POST', body: form })
  assert.equal(answer.status, 200)
  assert.equal(await box.files.read(`${path}/up`), 'sent')
})

test('a signature is for one path, one way and its time', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'a')
  await box.files.write(`${path}/b`, 'b')
  const url = await box.downloadUrl(`${path}/a`, { user: 'user' })
  const status = async (changed, options) => (await fetch(changed, options)).status
  assert.equal(await status(url), 200)
  assert.equal(await status(url.replace('v1_', 'v1_x')), 401)
  assert.equal(await status(url.replace('%2Fa&', '%2Fb&')), 401)
  assert.equal(await status(url.replace('username=user', 'username=root')), 401)
  assert.equal(await status(url, { method: 'POST', body: 'x' }), 401)
  assert.equal(await status(await box.downloadUrl(`${path}/a`, { useSignatureExpiration: -5 })), 401)
})
