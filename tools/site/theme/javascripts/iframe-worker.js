// A page that was opened from a folder (file://) may not start workers, and the search runs in one. Here a hidden
// frame runs the worker's script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><html><body></body></html>");
      inside.document.close();
      // What the script sends; later, as a message would come.
      inside.postMessage = (data) => {
        setTimeout(() => {
          const message = new MessageEvent("message", { data: structuredClone(data) });
          this.dispatchEvent(message);
          if (this.onmessage) this.onmessage(message);
        });
      };
      inside.importScripts = async (...urls) => {
        for (const url of urls) await loaded(inside.document, url);
      };
      this.ready = loaded(inside.document, url);
    }

    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };

  const loaded = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = reject;
      page.body.append(script);
    });
}
