// A message of tfdistr in the search field leads to its heading, whatever values it has, in Python's syntax or R's.
(() => {
  const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}_]+/gu, "")
  const known = tfdistrMessages
    .map(([title, address]) => {
      const pieces = title.split("…").map(plain)
      return { title, address, length: pieces.join("").length, pattern: new RegExp(pieces.join(".*?")) }
    })
    .filter((message) => message.length > 9)
    .sort((one, other) => other.length - one.length)
  const base = new URL(JSON.parse(document.getElementById("__config").textContent).base + "/", location.href)
  const field = document.querySelector("[data-md-component=search-query]")
  const results = document.querySelector(".md-search-result")
  const link = document.createElement("a")
  link.className = "message-found"
  link.hidden = true
  results.prepend(link)
  const look = () => {
    const text = plain(field.value)
    const found = known.find((message) => message.pattern.test(text))
    link.hidden = !found
    if (found) {
      link.textContent = found.title
      link.href = new URL(found.address, base)
    }
  }
  for (const event of ["input", "keyup", "change"]) field.addEventListener(event, look)
})()
