// Browsers start no worker from a file. Where the site is opened from a disk, its search runs in a hidden frame instead.
class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    const frame = (this.frame = document.createElement("iframe"));
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow;
    // What a script finds in a worker and not in a page. Scripts that it asks for come later, so that it has to wait for them.
    inside.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    inside.importScripts = async (...addresses) => {
      for (const one of addresses) await this.#run(one);
    };
    this.ready = this.#run(address);
  }

  #run(address) {
    return new Promise((done, failed) => {
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(address, location.href);
      script.onload = done;
      script.onerror = failed;
      this.frame.contentDocument.body.append(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = FrameWorker; // the theme asks for this name before it waits for scripts
  window.Worker = FrameWorker;
}
