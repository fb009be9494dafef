// 7 cases: what listens inside, reached by the headers that the guide names.

import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { test } from 'node:test'
import { fresh, headersOf, shared, until } from './helper.mjs'

const url = process.env.E2B_SANDBOX_URL
const box = await shared()

const SERVER = `
import base64, hashlib, http.server, sys, time
class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Connection", "upgrade"); self.send_header("Upgrade", "echo"); self.end_headers()
            while line := self.rfile.readline():
                self.wfile.write(b"echo " + line)
            return
        if self.path.startswith("/slow"):
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            self.wfile.write(b"5\\r\\nfirst\\r\\n"); self.wfile.flush()
            while not __import__("os").path.exists("/home/user/go"): time.sleep(.05)
            self.wfile.write(b"6\\r\\nsecond\\r\\n0\\r\\n\\r\\n")
            return
        self.answer(f"{self.command} {self.path} {self.headers.get('X-Mine')} {self.headers.get('X-Access-Token')} {self.headers.get('E2b-Sandbox-Id')}".encode())
    def do_POST(self):
        self.answer(hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest().encode(), 201)
    def answer(self, body, status=200):
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.send_header("X-Theirs", "yes"); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Door).serve_forever()
`

/** Starts the server inside and waits until it answers. */
async function serve(sandbox, port) {
  await sandbox.files.write('server.py', SERVER)
  await sandbox.commands.run(`exec python3 server.py ${port} 2>/dev/null`, { background: true, timeoutMs: 0 })
  await until(async () => (await fetch(url, { headers: headersOf(sandbox, port) })).status !== 502, 'nothing answers')
}

await serve(box, 8123)

test('a service is reached by its port', async () => {
  const answer = await fetch(`${url}/some/path?a=b%20c`, { headers: { ...headersOf(box, 8123), 'X-Mine': 'mine' } })
  assert.deepEqual([answer.status, answer.headers.get('x-theirs')], [200, 'yes'])
  assert.equal(await answer.text(), 'GET /some/path?a=b%20c mine None None', 'what proves who asks stays outside')
})

test('what is sent arrives', async () => {
  const body = randomBytes(3 << 20)
  const answer = await fetch(`${url}/upload`, { method: 'POST', body, headers: headersOf(box, 8123) })
  assert.equal(answer.status, 201)
  assert.equal(await answer.text(), createHash('sha256').update(body).digest('hex'))
})

test('answers come while they are made', async () => {
  const answer = await fetch(`${url}/slow`, { headers: headersOf(box, 8123) })
  const reader = answer.body.getReader()
  assert.equal(Buffer.from((await reader.read()).value).toString(), 'first')
  await box.files.write('go', '')
  assert.equal(Buffer.from((await reader.read()).value).toString(), 'second')
  assert.equal((await reader.read()).done, true)
})

test('protocols are changed', async () => {
  const { hostname, port } = new URL(url)
  const headers = { ...headersOf(box, 8123), Connection: 'Upgrade', Upgrade: 'echo' }
  const socket = await new Promise((done, failed) => {
    request({ hostname, port, headers }).on('upgrade', (_, socket) => done(socket)).on('error', failed)
      .on('response', (answer) => failed(new Error(`status ${answer.statusCode}`))).end()
  })
  let seen = ''
  socket.on('data', (data) => { seen += data })
  socket.write('one\n')
  await until(() => seen === 'echo one\n', () => seen)
  socket.write('two\n')
  await until(() => seen === 'echo one\necho two\n', () => seen)
  socket.destroy()
})

test('a port where nobody listens is told', async () => {
  const answer = await fetch(url, { headers: headersOf(box, 8124) })
  assert.equal(answer.status, 502)
  assert.match((await answer.json()).message, /8124/)
})

test('without its token nobody comes in', async (t) => {
  const other = await fresh(t)
  const headers = headersOf(box, 8123)
  for (const token of [other.trafficAccessToken, 'x', '']) {
    assert.equal((await fetch(url, { headers: { ...headers, 'X-Access-Token': token } })).status, 401)
  }
  const { 'X-Access-Token': token, ...rest } = headers
  assert.equal((await fetch(url, { headers: rest })).status, 401)
  assert.equal((await fetch(url, { headers: { ...rest, 'E2b-Traffic-Access-Token': token } })).status, 200)
})

test('each sandbox has ports of its own', async (t) => {
  const other = await fresh(t)
  assert.equal((await fetch(url, { headers: headersOf(other, 8123) })).status, 502)
  await serve(other, 8123)
  await other.kill()
  assert.equal((await fetch(url, { headers: headersOf(other, 8123) })).status, 502)
  assert.equal((await fetch(url, { headers: headersOf(box, 8123) })).status, 200)
})
